"""Modules for reading and writing files safely, including arrays in untrusted archives (`archive`)."""
