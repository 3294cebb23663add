"""The operator's terminal console. It talks to the controller through its API socket only."""
