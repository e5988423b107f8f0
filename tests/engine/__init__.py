"""What becomes of a job: when a process dies, when a side is away, among several copies."""
