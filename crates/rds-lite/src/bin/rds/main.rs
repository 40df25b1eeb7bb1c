//! Tools for RDS.

fn main() {}
