// The trait PostgreSQL fills this product.
