"""Settings that operators write: the policy, read from TOML and explained."""
