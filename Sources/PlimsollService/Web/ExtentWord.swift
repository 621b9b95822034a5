import Plimsoll
import PlimsollLifecycle

/// A `QuiesceExtent` packed into one word. 0 is `open`.
enum ExtentWord {
    static let open: UInt16 = 0

    static func bits(_ extent: QuiesceExtent) -> UInt16 {
        UInt16(extent.profile.rawValue) | UInt16(extent.share.rawValue) << 4 | (extent.isHeld ? 256 : 0)
    }

    static func read(_ bits: UInt16) -> QuiesceExtent {
        QuiesceExtent(
            profile: .init(rawValue: UInt8(bits & 15)) ?? .paused,
            share: .init(rawValue: UInt8(bits >> 4 & 15)) ?? .least, isHeld: bits & 256 != 0)
    }

    /// Returns the row of the policy's table; `nil` if no request is admitted.
    static func row(_ bits: UInt16) -> Int? {
        switch read(bits).profile {
        case .paused: nil
        case .background: Int(QuiesceExtent.Share.least.rawValue)
        case .foreground: Int(bits >> 4 & 15)
        }
    }
}
