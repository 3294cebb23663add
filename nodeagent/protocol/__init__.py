"""The vocabulary that controller, agents and ranks share, and its codec."""
