"""What devices draw while they serve: a law of three shares, fitted to runs whose power was measured."""
