//! The parts of the lab that other programs, tests and fuzz targets call.

pub mod trace;
