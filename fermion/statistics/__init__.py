"""What is known of values without reading them: bounds, Bloom filters, chunk details."""
