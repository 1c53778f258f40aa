"""The command-line command that metric DP adds: certify."""
