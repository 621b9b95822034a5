#if !PostgreSQL
// Names the trait to those who use the product without the trait.
@available(*, unavailable, message: "enable its trait: .package(url: …, traits: [\"PostgreSQL\"])")
public final class PostgreSQLTaskHandoff {}
#endif
