// The trait GRDB fills this product.
