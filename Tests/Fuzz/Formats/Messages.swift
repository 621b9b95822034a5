@testable import Plimsoll
@testable import PlimsollLinux
@testable import PlimsollService
@testable import PlimsollSupervisor

let messageFormats = [
    Format(name: "messages") { bytes in
        if let (sequence, message) = try? ChildMessage.decode(bytes), let message {
            let again = try? ChildMessage.decode(message.encoded(sequence).dropLast())
            require(again?.sequence == sequence && again?.message == message, "a unit's message is read as written")
        }
        if let (sequence, message) = try? SupervisorMessage.decode(bytes), let message {
            let again = try? SupervisorMessage.decode(message.encoded(sequence).dropLast())
            require(again?.sequence == sequence && again?.message == message, "an order is read as written")
        }
    },
    Format(name: "notify") { bytes in
        let message = NotifyMessage(parsing: bytes)
        require(message.problems.count <= NotifyMessage.maximumProblems, "problems are bounded")
        require(message.status.map { !$0.contains("\n") } ?? true, "a status is one line")
        require(message.mainProcess.map { $0 > 0 } ?? true, "a main process has a number")
        // Zero ends the watchdog.
        require(message.watchdogInterval.map { $0 >= .zero } ?? true, "the interval of a watchdog is not negative")
    },
    Format(name: "service-manager") { bytes in
        let text = String(decoding: bytes, as: UTF8.self)
        _ = ServiceManagerWatch.decode(text)
        if let (generation, name) = ServiceManagerStateStore.parse(text) {
            let again = ServiceManagerStateStore.parse(ServiceManagerStateStore.label(name, generation))
            require(again.map { $0 == (generation, name) } ?? false, "a label is read as written")
        }
    },
    Format(name: "admin") { bytes in
        let json = AdminJSON()
        do throws(AdminRefusal) {
            _ = try json.request(bytes[...])
        } catch {
            require(!error.sentence.isEmpty && error.sentence.utf8.count < 1000, "a refusal says why, briefly")
        }
        _ = try? json.answer(bytes)
        _ = try? ManagerStatus(json: String(decoding: bytes, as: UTF8.self))
        let text = String(decoding: bytes, as: UTF8.self), rule = HostRule(["plimsoll.example", text])
        if HostRule([]).allows(text) { require(rule.allows(text), "a further name takes no host away") }
        require(!HostRule([]).allows(text + "@evil.example"), "user information is no host")
    },
]
