"""The command-line command of metric DP: certify."""
