"""Tables written by Spark tasks: tasks, clustering, staged tables."""
