#if !GRPC
// Names the trait to those who use the product without the trait.
@available(*, unavailable, message: "enable its trait: .package(url: …, traits: [\"GRPC\"])")
public struct LoadSheddingInterceptor {}
#endif
