// The package trait `Hummingbird` enables this product: `.package(…, traits: ["Hummingbird"])`.
