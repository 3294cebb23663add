"""What tasks and models are like: shapes, layouts, throughput tables, reference data."""
