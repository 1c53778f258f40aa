"""Modules that read and write files safely, including arrays from untrusted archives (`archive`)."""
