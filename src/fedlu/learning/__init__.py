"""What a client does with its own triples."""
