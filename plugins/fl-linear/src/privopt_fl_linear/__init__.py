"""FL-Linear: facility location under local differential privacy."""
