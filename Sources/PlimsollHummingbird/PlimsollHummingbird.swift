// The trait Hummingbird fills this product: `.package(…, traits: ["Hummingbird"])`.
