import Configuration
import Logging
import Plimsoll
import PlimsollTesting
import TestSupport
import Testing

@testable import PlimsollService

@Suite(.timeLimit(.minutes(5))) struct ConfigurationTests {
    private func problems(_ environment: [String: String]) -> [String] {
        do throws(ConfigurationProblem) {
            _ = try ServiceSettings(environment: environment)
            return []
        } catch {
            return error.problems
        }
    }

    @Test func `the environment overrides settings of the code, and the rest stays`() throws {
        let own = PressurePolicy(handlerBudget: .seconds(2), backgroundAllowance: .seconds(60))
        var mine = ServiceSettings()
        mine.drainDelay = .seconds(3)
        let settings = try ServiceSettings(
            environment: [
                "PLIMSOLL_SHUTDOWN_BUDGET": "40s", "PLIMSOLL_DRY_RUN": "yes", "PLIMSOLL_WARNING_SHARE": "0.3", "PLIMSOLL_WARNING_MAX_MARGIN": "2GiB",
                "PLIMSOLL_BACKGROUND_ALLOWANCE": "2m", "PLIMSOLL_TERMINATE_AFTER": "30s", "PLIMSOLL_TERMINATE_GRACE": "3s", "HOME": "/",
                "PLIMSOLL_METRICS_INTERVAL": "0", "PLIMSOLL_NOTIFY": "off", "PLIMSOLL_ENABLED": "", "PLIMSOLL_SIMULATE": "critical:5s",
            ], defaults: mine)
        #expect(settings.shutdownBudget == .seconds(40) && settings.drainDelay == .seconds(3) && settings.isEnabled)
        let policy = try settings.policy(over: own)
        #expect(policy.isDryRun && policy.handlerBudget == .seconds(2) && policy.backgroundAllowance == .seconds(120))
        #expect(policy.thresholds.warningMargin == .init(share: 0.3, atMost: .gibibytes(2)))
        #expect(policy.ladder == .standard.terminating(after: .seconds(30), grace: .seconds(3)))
        #expect(settings.metricsInterval == .zero && !settings.notifiesServiceManager)
    }

    @Test func `the time to save holds for the end of another configuration, before or after`() throws {
        let both = ["PLIMSOLL_TERMINATE_AFTER": "60s", "PLIMSOLL_TERMINATE_GRACE": "3s"]
        for file in [both, ["PLIMSOLL_TERMINATE_GRACE": "3s"]] {
            let defaults = try ServiceSettings(environment: file)
            let settings = try ServiceSettings(environment: ["PLIMSOLL_TERMINATE_AFTER": "30s"], defaults: defaults)
            let ladder = try settings.policy(over: .standard).ladder
            #expect(ladder == .standard.terminating(after: .seconds(30), grace: .seconds(3)), "\(file)")
        }
    }

    @Test func `a former name works, is refused under the new name, and yields to the new name`() throws {
        for (key, former) in Setting.formerKeys {
            let setting = try #require(Setting.all.first { $0.key == key }), old = Setting.variable(former)
            #expect(problems([old: "wrong"]).map { $0.hasPrefix("\(key) (\(setting.variable)) is \"wrong\"") } == [true], "\(former)")
            #expect(!ServiceSettings.keys.contains { $0.name == former })
            let standard = try ServiceSettings(environment: [old: setting.standard])
            let warning = "\(former) (\(old)) is the former name of \(key) (\(setting.variable))"
            #expect(standard.warnings.map { $0.hasPrefix(warning) } == [true], "\(standard.warnings)")
        }
        let settings = try ServiceSettings(environment: ["PLIMSOLL_FALL_HOLD": "7s", "PLIMSOLL_LOG_REST": "3s", "PLIMSOLL_LOG_MIN_INTERVAL": "2s"])
        #expect(settings.policy.thresholds.fallHold == .seconds(7) && settings.logRest == .seconds(2) && settings.warnings.count == 1)
    }

    @Test func `every key accepts the standard value, which equals the default`() throws {
        let bare = ServiceSettings()
        for setting in Setting.all {
            var settings = ServiceSettings()
            try setting.apply(setting.standard, &settings)
            #expect(settings.policy == bare.policy, "\(setting.key)")
            #expect(settings.shutdownBudget == bare.shutdownBudget && settings.drainDelay == bare.drainDelay, "\(setting.key)")
            #expect(settings.shutdownTaskShare == bare.shutdownTaskShare && settings.cacheLimits == bare.cacheLimits, "\(setting.key)")
            #expect(settings.logRest == bare.logRest && settings.metricsInterval == bare.metricsInterval, "\(setting.key)")
            #expect(settings.isEnabled == bare.isEnabled && settings.notifiesServiceManager == bare.notifiesServiceManager, "\(setting.key)")
        }
    }

    @Test func `disallowed values are refused with key, value and allowed range, all of them at once`() {
        let found = problems([
            "PLIMSOLL_SHUTDOWN_BUDGET": "soon", "PLIMSOLL_DRY_RUN": "maybe", "PLIMSOLL_STALL_WARNING": "1.5", "PLIMSOLL_HANDLER_BUDGET": "1ms",
            "PLIMSOLL_BACKGROUND_MAX_TASKS": "0", "PLIMSOLL_CRITICAL_MAX_MARGIN": "-1", "PLIMSOLL_TERMINATE_AFTER": "later\u{1B}[2J",
        ])
        #expect(found.count == 7)
        #expect(found.contains(#"shutdown.budget (PLIMSOLL_SHUTDOWN_BUDGET) is "soon"; allowed is a duration, 0 to 1h"#))
        #expect(found.contains(#"stall.warning (PLIMSOLL_STALL_WARNING) is "1.5"; allowed is a share, 0 to 1"#))
        #expect(found.contains(#"handler.budget (PLIMSOLL_HANDLER_BUDGET) is "1ms"; allowed is a duration, 10ms to 10m"#))
        #expect(!found.contains { $0.contains("\u{1B}") })
    }

    @Test func `settings that contradict each other are refused`() {
        #expect(problems(["PLIMSOLL_WARNING_SHARE": "0.05"]).first?.contains("criticalMargin must not exceed warningMargin") == true)
        #expect(problems(["PLIMSOLL_SHUTDOWN_DRAIN_DELAY": "30s"]).first?.contains("more than shutdown.budget") == true)
    }

    private static let unknown = ["PLIMSOLL_DRYRUN": "true", "PLIMSOLL_FLUX_CAPACITOR_COLOUR": "red", "PLIMSOLL_LOG_MIN_INTERVAL": "3s"]
    private static let sentences = [
        "PLIMSOLL_DRYRUN is not a setting; did you mean PLIMSOLL_DRY_RUN?", "PLIMSOLL_FLUX_CAPACITOR_COLOUR is not a setting",
    ]

    @Test func `an unknown variable gives a warning with the closest name, and the others apply`() throws {
        let settings = try ServiceSettings(environment: Self.unknown)
        #expect(settings.warnings == Self.sentences && settings.logRest == .seconds(3))
        #expect(try ServiceSettings(environment: ["PLIMSOLL_SUPERVISOR": "/run/p.sock", "PLIMSOLL": "x", "OTHER": "y"]).warnings == [])
        let book = LogBook()
        _ = ResourceService(ResourceManager(source: ScriptedPressureSource()), settings: settings, logger: book.logger)
        #expect(book.entries.map(\.level) == [.warning, .warning])
        #expect(Set(book.entries.map(\.message)) == ["ignored an unknown variable"])
        #expect(book.entries.map { $0["variables"] } == ["PLIMSOLL_DRYRUN", "PLIMSOLL_FLUX_CAPACITOR_COLOUR"])
        #expect(book.entries.map { $0["reason"] } == Self.sentences)
    }

    @Test func `an unknown variable beside a malformed value is no error, but the value is`() {
        #expect(problems(Self.unknown.merging(["PLIMSOLL_DRY_RUN": "perhaps"]) { $1 }).map { $0.hasPrefix("dryRun (PLIMSOLL_DRY_RUN)") } == [true])
    }

    @Test func `strictness set by code or environment refuses unknown variables, and the environment takes precedence`() throws {
        func refused(_ more: [String: String], _ strict: Bool) -> [String] {
            do throws(ConfigurationProblem) {
                _ = try ServiceSettings(environment: Self.unknown.merging(more) { $1 }, strict: strict)
                return []
            } catch {
                return error.problems
            }
        }
        #expect(refused([:], true) == Self.sentences && refused(["PLIMSOLL_STRICT": "true"], false) == Self.sentences)
        #expect(refused(["PLIMSOLL_STRICT": "false"], true) == [] && refused([:], false) == [])
        let both = refused(["PLIMSOLL_HANDLER_BUDGET": "1ms"], true)
        #expect(both.count == 3 && Array(both.prefix(2)) == Self.sentences)
    }

    @Test(arguments: [false, true])
    func `service links of Kubernetes are named as such and never stop the start`(strict: Bool) throws {
        let links = [
            "PLIMSOLL_PORT", "PLIMSOLL_PORT_80_TCP", "PLIMSOLL_PORT_80_TCP_ADDR", "PLIMSOLL_PORT_80_TCP_PORT", "PLIMSOLL_PORT_80_TCP_PROTO",
            "PLIMSOLL_SERVICE_HOST", "PLIMSOLL_SERVICE_PORT", "PLIMSOLL_SERVICE_PORT_HTTP",
        ]
        let settings = try ServiceSettings(environment: Dictionary(uniqueKeysWithValues: links.map { ($0, "tcp://10.0.0.1:80") }), strict: strict)
        #expect(settings.warnings.count == 1)
        #expect(settings.warnings[0].hasPrefix(links.joined(separator: ", ") + " are service links of Kubernetes"))
        #expect(settings.warnings[0].contains("enableServiceLinks: false"))
        #expect(ServiceSettings.isServiceLink("PLIMSOLL_ADMIN_SERVICE_HOST") && ServiceSettings.isServiceLink("PLIMSOLL_ADMIN_PORT_53_UDP"))
        for other in ["PLIMSOLL_PORTS", "PLIMSOLL_PORT_TCP", "PLIMSOLL_SERVICE", "PLIMSOLL_SERVICE_HOSTS", "PLIMSOLL_PORT_80_TCP_NAME"] {
            #expect(!ServiceSettings.isServiceLink(other), "\(other)")
        }
        #expect(!Setting.all.contains { ServiceSettings.isServiceLink($0.variable) })
    }

    @Test func `variables are named as the environment's provider names keys`() throws {
        for setting in Setting.all {
            let reader = ConfigReader(provider: EnvironmentVariablesProvider(environmentVariables: [setting.variable: "here"])).scoped(to: "plimsoll")
            #expect(ServiceSettings.text(reader.snapshot(), setting.key) == "here", "\(setting.key) \(setting.variable)")
        }
    }

    @Test func `values of any type are read: a file's numbers and booleans as well as text`() throws {
        let reader = ConfigReader(
            provider: InMemoryProvider(values: [
                "plimsoll.shutdown.budget": 12, "plimsoll.dryRun": true, "plimsoll.stall.critical": 0.7, "plimsoll.handler.budget": "250ms",
            ])
        ).scoped(to: "plimsoll")
        let manager = ResourceManager(source: ScriptedPressureSource())
        let plimsoll = ResourceService(manager, settings: try ServiceSettings(reader: reader))
        #expect(plimsoll.settings.shutdownBudget == .seconds(12) && manager.isDryRun && manager.policy.isDryRun)
        #expect(manager.policy.thresholds.stallCritical == 0.7 && manager.policy.handlerBudget == .milliseconds(250))
    }

    @Test func `a file's list is read like text with commas, and refused where one value belongs`() throws {
        func settings(_ key: AbsoluteConfigKey, _ parts: [String]) throws -> ServiceSettings {
            let provider = InMemoryProvider(values: [key: ConfigValue(.stringArray(parts), isSecret: false)])
            return try ServiceSettings(reader: ConfigReader(provider: provider).scoped(to: "plimsoll"))
        }
        let hosts = try settings("plimsoll.admin.hosts", ["shop.internal", "ops.example"]).adminHosts
        #expect(hosts == ["shop.internal", "ops.example"])
        #expect(try settings("plimsoll.admin.hosts", []).adminHosts == [])
        let limits = try settings("plimsoll.caches.limits", ["thumbs=64MiB", "pages=2G"]).cacheLimits
        #expect(limits == ["thumbs": .mebibytes(64), "pages": .gibibytes(2)])
        #expect(throws: ConfigurationProblem.self) { _ = try settings("plimsoll.shutdown.budget", ["12s", "13s"]) }
    }

    @Test func `dry run is followed while the process runs, and a disallowed value changes nothing`() async throws {
        let provider = MutableInMemoryProvider(initialValues: ["plimsoll.dryRun": "false"])
        let reader = ConfigReader(provider: provider).scoped(to: "plimsoll")
        let manager = ResourceManager(source: ScriptedPressureSource())
        let plimsoll = ResourceService(manager, settings: try ServiceSettings(reader: reader))
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask { try await plimsoll.follow(reader) }
            provider.setValue("on", forKey: "plimsoll.dryRun")
            #expect(await until("dry run") { manager.isDryRun })
            provider.setValue("perhaps", forKey: "plimsoll.dryRun")
            // Once a later change of another key has arrived, the manager has seen the disallowed value.
            provider.setValue("7s", forKey: "plimsoll.shutdown.budget")
            #expect(await until("the next change") { plimsoll.settings.shutdownBudget == .seconds(7) })
            #expect(manager.isDryRun, "a value that is not allowed changes nothing")
            provider.setValue(false, forKey: "plimsoll.dryRun")
            #expect(await until("the end of the dry run") { !manager.isDryRun })
            group.cancelAll()
            try await group.waitForAll()
        }
    }

    @Test func `limits of caches are read by name, each once and in range, with any characters in a name`() throws {
        let settings = try ServiceSettings(environment: ["PLIMSOLL_CACHES_LIMITS": "thumbs=64MiB, a:b c=2G,x = 1KiB "])
        #expect(settings.cacheLimits == ["thumbs": .mebibytes(64), "a:b c": .gibibytes(2), "x": .kibibytes(1)])
        for wrong in ["thumbs", "thumbs=", "thumbs=1KiB,thumbs=2KiB", "thumbs=1", "thumbs=-1MiB", "thumbs=64MiB;x=1MiB", "=", "a=1MiB,b"] {
            let found = problems(["PLIMSOLL_CACHES_LIMITS": wrong])
            #expect(
                found.count == 1 && found[0].hasPrefix("caches.limits (PLIMSOLL_CACHES_LIMITS) is \"\(wrong)\"; allowed is `thumbs=64MiB"), "\(wrong)"
            )
        }
    }

    @Test func `the division of memory is set by a word`() throws {
        #expect(try ServiceSettings(environment: [:]).policy.division == PressurePolicy.standard.division)
        #expect(try ServiceSettings(environment: ["PLIMSOLL_CACHES_DIVISION": "Worth"]).policy.division == .byWorth)
        #expect(try ServiceSettings(environment: ["PLIMSOLL_CACHES_DIVISION": "proportional"]).policy.division == .proportional)
        #expect(
            problems(["PLIMSOLL_CACHES_DIVISION": "equal"]) == [
                "caches.division (PLIMSOLL_CACHES_DIVISION) is \"equal\"; allowed is proportional or worth"
            ])
    }

    @Test func `limits of caches hold from the start, for caches registered before and after`() throws {
        let early = PurgeableCache<Int, Int>("early", limit: .mebibytes(8)), late = PurgeableCache<Int, Int>("late"),
            other = PurgeableCache<Int, Int>("other")
        var settings = ServiceSettings()
        settings.cacheLimits = ["early": .mebibytes(1), "late": .mebibytes(2), "nobody": .mebibytes(3)]
        let manager = ResourceManager(source: ScriptedPressureSource())
        manager.register(early)
        _ = ResourceService(manager, settings: settings)
        manager.register(late)
        manager.register(other)
        manager.register("late", byteCount: { 0 }, release: { _ in 0 })
        #expect(early.limit == .mebibytes(1) && late.limit == .mebibytes(2) && other.limit == .max)
    }

    @Test func `live settings are followed, and a disallowed value is logged once while the value before holds`() async throws {
        let provider = MutableInMemoryProvider(initialValues: ["plimsoll.shutdown.budget": "20s", "plimsoll.caches.limits": "thumbs=8MiB"])
        let reader = ConfigReader(provider: provider).scoped(to: "plimsoll"), book = LogBook()
        let manager = ResourceManager(source: ScriptedPressureSource()), thumbs = PurgeableCache<Int, Int>("thumbs")
        let plimsoll = ResourceService(manager, settings: try ServiceSettings(reader: reader), logger: book.logger)
        manager.register(thumbs)
        #expect(thumbs.limit == .mebibytes(8))
        await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask { try await plimsoll.follow(reader) }
            provider.setValue("thumbs=2MiB", forKey: "plimsoll.caches.limits")
            await until { thumbs.limit == .mebibytes(2) }
            provider.setValue("2h", forKey: "plimsoll.shutdown.budget")
            await until { !book.entries.isEmpty }
            // A limit set by an operator holds until this setting changes.
            thumbs.limit = .mebibytes(3)
            for delay in ["1s", "2s", "3s"] {
                provider.setValue(ConfigValue(.string(delay), isSecret: false), forKey: "plimsoll.shutdown.drainDelay")
                await until { plimsoll.settings.drainDelay == Duration(plimsoll: delay) }
            }
            #expect(plimsoll.settings.shutdownBudget == .seconds(20) && thumbs.limit == .mebibytes(3))
            provider.setValue("40s", forKey: "plimsoll.shutdown.budget")
            await until { plimsoll.settings.shutdownBudget == .seconds(40) }
            // A contradiction leaves both settings unchanged.
            provider.setValue("41s", forKey: "plimsoll.shutdown.drainDelay")
            await until { book.entries.count >= 2 }
            #expect(plimsoll.settings.shutdownBudget == .seconds(40) && plimsoll.settings.drainDelay == .seconds(3))
            group.cancelAll()
        }
        #expect(book.entries.count == 2)
        #expect(book.entries.first?["reason"] == #"shutdown.budget (PLIMSOLL_SHUTDOWN_BUDGET) is "2h"; allowed is a duration, 0 to 1h"#)
        #expect(book.entries.last?["reason"]?.hasPrefix("shutdown.drainDelay is 41.0 seconds, more than shutdown.budget") == true)
    }

    @Test func `durations are read with a unit, and no other text`() {
        #expect(
            Duration(plimsoll: "500ms") == .milliseconds(500) && Duration(plimsoll: "2h") == .seconds(7200) && Duration(plimsoll: "7") == .seconds(7))
        for wrong in ["", "s", "1.5s", "-1s", "1 s", "1d", "١s", "10000000000s", "1000000000h"] {
            #expect(Duration(plimsoll: wrong) == nil, "\(wrong)")
        }
    }
}
