#if !AsyncHTTPClient
// Names the trait to those who use the product without the trait.
@available(*, unavailable, message: "enable its trait: .package(url: …, traits: [\"AsyncHTTPClient\"])")
public final class ScaledHTTPClient {}
#endif
