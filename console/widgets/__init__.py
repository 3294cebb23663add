"""Line-drawn widgets: each paints rows that the view model made, and knows nothing else."""
