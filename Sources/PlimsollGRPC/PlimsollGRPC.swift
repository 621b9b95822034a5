// The package trait `GRPC` enables this product: `.package(…, traits: ["GRPC"])`.
