"""What training programs import."""
