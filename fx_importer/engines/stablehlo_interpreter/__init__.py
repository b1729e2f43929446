"""StableHLO's reference interpreter."""
