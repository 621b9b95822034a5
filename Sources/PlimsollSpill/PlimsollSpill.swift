// The trait Spill fills this product.
