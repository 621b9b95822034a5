#if !GRDB
// Names the trait to those who use the product without the trait.
@available(*, unavailable, message: "enable its trait: .package(url: …, traits: [\"GRDB\"])")
public final class DatabaseCacheLimit {}

@available(*, unavailable, message: "enable its trait: .package(url: …, traits: [\"GRDB\"])")
public final class PurgeableDatabase {}

@available(*, unavailable, message: "enable its trait: .package(url: …, traits: [\"GRDB\"])")
public final class SQLiteTaskHandoff {}
#endif
