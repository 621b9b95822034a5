import Testing

@testable import Plimsoll
@testable import PlimsollLifecycle

/// The extent as a function of its inputs.
@Suite struct QuiesceExtentTests {
    private static let states: [LifecycleState?] = [nil] + LifecycleState.allCases

    private static var allInputs: [QuiesceInputs] {
        var all: [QuiesceInputs] = []
        for state in states {
            for level in PressureLevel.allCases {
                for bits in 0..<8 {
                    all.append(
                        QuiesceInputs(state: state, level: level, isQuiescing: bits & 1 != 0, gaps: bits & 2, isLate: bits & 4 != 0))
                }
            }
        }
        return all
    }

    @Test func `C38 C82 every combination of inputs gives the extent in the tables`() {
        let profiles: [(LifecycleState?, general: QuiesceExtent.Profile, leased: QuiesceExtent.Profile)] = [
            (nil, .foreground, .foreground), (.active, .foreground, .foreground), (.inactive, .paused, .foreground),
            (.background, .background, .foreground), (.suspended, .paused, .foreground), (.notRunning, .paused, .paused),
        ]
        let shares: [PressureLevel: QuiesceExtent.Share] = [.normal: .whole, .warning: .half, .critical: .quarter]
        for inputs in Self.allInputs {
            let isHeld = inputs.gaps > 0 || inputs.isLate
            let row = profiles.first { $0.0 == inputs.state }
            for (isLeased, profile) in [(false, row?.general), (true, row?.leased)] {
                let extent = inputs.extent(isLeased: isLeased)
                #expect(extent.isHeld == isHeld && extent.profile == (isHeld ? .paused : profile), "\(inputs)")
                #expect(extent.share == (inputs.isQuiescing ? .least : shares[inputs.level]), "\(inputs)")
            }
        }
        #expect(Self.allInputs.count == 6 * 3 * 8)
    }

    @Test func `C34 a lease never lowers the extent, and raises nothing on the way back from a freeze`() {
        for inputs in Self.allInputs {
            let general = inputs.extent(isLeased: false), leased = inputs.extent(isLeased: true)
            #expect(leased >= general, "\(inputs)")
            if inputs.gaps > 0 || inputs.isLate { #expect(leased == general && leased.isPaused, "\(inputs)") }
        }
    }

    @Test func `an extent survives a round trip through one byte`() {
        for profile in QuiesceExtent.Profile.allCases {
            for share in QuiesceExtent.Share.allCases {
                for isHeld in [false, true] {
                    let extent = QuiesceExtent(profile: profile, share: share, isHeld: isHeld)
                    #expect(QuiesceExtent(bits: extent.bits) == extent)
                }
            }
        }
        #expect(QuiesceExtent(bits: 0) == .open)
    }

    @Test func `C35 C82 a smaller share never lets more run, and only a pause lets nothing run`() {
        let extents = QuiesceExtent.Profile.allCases.flatMap { profile in
            QuiesceExtent.Share.allCases.map { QuiesceExtent(profile: profile, share: $0) }
        }
        for limit in [1, 2, 3, 7, 64] {
            for extent in extents {
                let count = extent.count(of: limit, inBackground: 2)
                #expect(extent.isPaused ? count == 0 : (1...limit).contains(count), "\(extent) of \(limit)")
                for other in extents where other.profile == extent.profile && other < extent {
                    #expect(other.count(of: limit, inBackground: 2) <= count, "\(other) of \(limit)")
                }
            }
        }
        #expect(QuiesceExtent.narrowed(to: .half).count(of: 64, inBackground: 1) == 32)
        #expect(QuiesceExtent.narrowed(to: .quarter).count(of: 64, inBackground: 1) == 16)
        #expect(QuiesceExtent.narrowed(to: .least).count(of: 64, inBackground: 1) == 1)
        #expect(QuiesceExtent.background.count(of: 64, inBackground: 1) == 1 && QuiesceExtent.background.count(of: 64, inBackground: 0) == 0)
    }

    @Test func `extents have readable descriptions`() {
        #expect("\(QuiesceExtent.open)" == "open" && "\(QuiesceExtent.narrowed(to: .half))" == "open, half")
        #expect("\(QuiesceExtent(profile: .paused, share: .least, isHeld: true))" == "held, least" && "\(QuiesceExtent.background)" == "background")
    }
}
