//! The size of the next block, as `[` and `]` move it: from 512 bytes to what a lesson needs, with the borders of the
//! allocator's pools among them.

use crate::units::Bytes;
use crate::worker::{Dtype, Shape};

/// Shapes in growing order: 512 B in float32; 1 MiB, the small pool's largest; just above it; 10 MiB, the border of the
/// 20 MiB segments; a 4096 x 4096 matrix; and the first block of every new user (issue 2.7).
const SHAPES: [&[u64]; 11] = [
    &[128],
    &[1000],
    &[512, 512],
    &[513, 512],
    &[2560, 1024],
    &[4096, 4096],
    &[5000, 10_000],
    &[10_000, 10_000],
    &[10_000, 20_000],
    &[16_384, 16_384],
    &[20_000, 20_000],
];

/// The list with the current choice.
#[derive(Clone, Debug)]
pub struct Sizes {
    shapes: Vec<Shape>,
    at: usize,
    dtype: Dtype,
}

impl Sizes {
    /// The list with `first` chosen; a shape that is not in the list is put in its place.
    pub fn new(first: &Shape, dtype: Dtype) -> Self {
        let mut shapes: Vec<Shape> = SHAPES.iter().filter_map(|d| Shape::new(d.to_vec()).ok()).collect();
        if !shapes.contains(first) {
            shapes.push(first.clone());
        }
        shapes.sort_by_key(Shape::elements);
        let at = shapes.iter().position(|s| s == first).unwrap_or_default();
        Sizes { shapes, at, dtype }
    }

    /// The next block's shape.
    pub fn shape(&self) -> &Shape {
        &self.shapes[self.at]
    }

    /// The next block's element type.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// The next block's bytes; `None` beyond 2^64.
    pub fn bytes(&self) -> Option<Bytes> {
        self.shape().bytes(self.dtype).map(Bytes)
    }

    /// One smaller, as far as there is one.
    pub fn smaller(&mut self) {
        self.at = self.at.saturating_sub(1);
    }

    /// One larger, as far as there is one.
    pub fn larger(&mut self) {
        self.at = (self.at + 1).min(self.shapes.len() - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_through_growing_sizes_and_stops_at_the_ends() {
        let mut sizes = Sizes::new(&Shape::default(), Dtype::Float32);
        assert_eq!(sizes.bytes(), Some(Bytes(800_000_000)));
        let mut last = sizes.bytes();
        for _ in 0..20 {
            sizes.smaller();
            assert!(sizes.bytes() <= last);
            last = sizes.bytes();
        }
        assert_eq!(last, Some(Bytes(512)));
        for _ in 0..30 {
            sizes.larger();
        }
        assert_eq!(sizes.shape().to_string(), "20000x20000");
    }

    #[test]
    fn a_shape_of_ones_own_stands_in_order() {
        let mut sizes = Sizes::new(&"300x300".parse().unwrap(), Dtype::Float16);
        assert_eq!(sizes.bytes(), Some(Bytes(180_000)));
        sizes.larger();
        assert_eq!(sizes.shape().to_string(), "512x512");
    }
}
