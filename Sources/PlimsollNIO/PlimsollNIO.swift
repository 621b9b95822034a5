// The trait NIO fills this product.
