// The trait Hummingbird fills this product.
