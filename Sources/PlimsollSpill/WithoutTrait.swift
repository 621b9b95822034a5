#if !Spill
// Names the trait to those who use the product without the trait.
@available(*, unavailable, message: "enable its trait: .package(url: …, traits: [\"Spill\"])")
public struct SpillStore {}

@available(*, unavailable, message: "enable its trait: .package(url: …, traits: [\"Spill\"])")
public final class SpilledCache<Key, Value> {}
#endif
