"""Modules that read and write files safely, including arrays in untrusted archives (`archive`)."""
