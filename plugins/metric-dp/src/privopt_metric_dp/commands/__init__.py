"""Commands of metric DP: apply, init, curve, certify."""
