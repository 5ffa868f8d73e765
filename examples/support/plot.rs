//! Bar charts of the same kind, side by side, as SVG and as PNG.
//!
//! The text of a PNG is set in the font that is bundled, that of an SVG in the reader's own; so neither needs a font that
//! is installed here.

use std::error::Error;
use std::ops::Range;
use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::register_font;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// One chart: bars of this width, from the left edges `x` up to `y`.
pub(crate) struct Panel {
    pub(crate) title: String,
    pub(crate) x: Vec<f64>,
    pub(crate) y: Vec<f64>,
    pub(crate) width: f64,
}

const FONT: &[u8] = include_bytes!("../fonts/DejaVuSans-subset.ttf");

// Drawn on a ground of its own, so that it does not matter what is behind the picture.
const GROUND: RGBColor = RGBColor(252, 252, 250);
const TEXT: RGBColor = RGBColor(32, 33, 36);
const LINE: RGBColor = RGBColor(214, 214, 210);
const BAR: RGBColor = RGBColor(0, 92, 175);

const COLUMNS: usize = 2;
const WIDTH: u32 = 1040;
const TITLE_HEIGHT: u32 = 44;
const ROW_HEIGHT: u32 = 250;

/// Draws the panels in a grid of two columns below a title, all with the same x range and their own y range unless
/// `shared_y`, as SVG at `svg` and, if given, as PNG at `png`.
pub(crate) fn bars(
    svg: &Path,
    png: Option<&Path>,
    title: &str,
    x_label: &str,
    y_label: &str,
    shared_y: bool,
    panels: &[Panel],
) -> Result<(), Box<dyn Error>> {
    register_font("sans-serif", FontStyle::Normal, FONT)
        .map_err(|_| "the bundled font can't be read")?;
    let figure = Figure {
        title,
        x_label,
        y_label,
        shared_y,
        panels,
    };
    let rows = u32::try_from(panels.len().div_ceil(COLUMNS).max(1))?;
    let (width, height) = (WIDTH, TITLE_HEIGHT + rows * ROW_HEIGHT);

    let mut text = String::new();
    figure.draw(
        &SVGBackend::with_string(&mut text, (width, height)).into_drawing_area(),
        1,
    )?;
    std::fs::write(svg, text)?;
    if let Some(png) = png {
        // Two pixels to each point, for screens that have them.
        let size = (2 * width, 2 * height);
        figure.draw(&BitMapBackend::new(png, size).into_drawing_area(), 2)?;
    }
    Ok(())
}

struct Figure<'a> {
    title: &'a str,
    x_label: &'a str,
    y_label: &'a str,
    shared_y: bool,
    panels: &'a [Panel],
}

impl Figure<'_> {
    /// Draws everything `scale` times as large.
    fn draw<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, Shift>,
        scale: u32,
    ) -> Result<(), Box<dyn Error>>
    where
        B::ErrorType: 'static,
    {
        area.fill(&GROUND)?;
        let (top, below) = area.split_vertically(TITLE_HEIGHT * scale);
        let middle = (
            i32::try_from(WIDTH * scale / 2)?,
            i32::try_from(TITLE_HEIGHT * scale / 2)?,
        );
        let centred = font(22, scale).pos(Pos::new(HPos::Center, VPos::Center));
        top.draw_text(self.title, &centred, middle)?;
        let rows = self.panels.len().div_ceil(COLUMNS).max(1);
        let x = self.x_range();
        let highest = self.panels.iter().map(Panel::highest).fold(0.0, f64::max);
        // As many as stand side by side without touching.
        let x_labels = (60 / (number(x.end.floor()).len() + 2)).clamp(3, 9);
        // The same for all panels, so that their axes stand in line.
        let label_width = self
            .panels
            .iter()
            .map(|panel| number(panel.highest()).len())
            .max()
            .unwrap_or(1);
        for (panel, cell) in self.panels.iter().zip(below.split_evenly((rows, COLUMNS))) {
            let top = if self.shared_y {
                highest
            } else {
                panel.highest()
            };
            let top = if top > 0.0 { top * 1.05 } else { 1.0 };
            let mut chart = ChartBuilder::on(&cell)
                .margin(6 * scale)
                .margin_right(22 * scale)
                .caption(&panel.title, font(17, scale))
                .x_label_area_size(42 * scale)
                .y_label_area_size((38 + 8 * u32::try_from(label_width)?) * scale)
                .build_cartesian_2d(x.clone(), 0.0..top)?;
            chart
                .configure_mesh()
                .disable_x_mesh()
                .bold_line_style(LINE.stroke_width(scale))
                .light_line_style(TRANSPARENT)
                .axis_style(TEXT.stroke_width(scale))
                .x_labels(x_labels)
                .y_labels(6)
                .x_label_formatter(&|x| number(*x))
                .y_label_formatter(&|y| number(*y))
                .label_style(font(15, scale))
                .axis_desc_style(font(15, scale))
                .x_desc(self.x_label)
                .y_desc(self.y_label)
                .draw()?;
            chart.draw_series(
                panel
                    .outlines()
                    .into_iter()
                    .map(|outline| Polygon::new(outline, BAR.filled())),
            )?;
        }
        area.present()?;
        Ok(())
    }

    fn x_range(&self) -> Range<f64> {
        let lefts = self.panels.iter().flat_map(|panel| &panel.x);
        let start = lefts.copied().fold(f64::INFINITY, f64::min);
        let rights = self
            .panels
            .iter()
            .flat_map(|panel| panel.x.iter().map(|x| x + panel.width));
        let end = rights.fold(f64::NEG_INFINITY, f64::max);
        if start < end { start..end } else { 0.0..1.0 }
    }
}

impl Panel {
    fn highest(&self) -> f64 {
        self.y.iter().copied().fold(0.0, f64::max)
    }

    /// The outlines of the bars that stand side by side: a fraction of the size that the bars themselves would need.
    fn outlines(&self) -> Vec<Vec<(f64, f64)>> {
        let mut outlines: Vec<Vec<(f64, f64)>> = Vec::new();
        let mut end = f64::NEG_INFINITY;
        for (&left, &y) in self.x.iter().zip(&self.y) {
            if y <= 0.0 {
                continue;
            }
            let right = left + self.width;
            let touches = (left - end).abs() < self.width / 1000.0;
            match outlines.last_mut() {
                Some(outline) if touches => {
                    if outline.last().is_some_and(|last| same(last.1, y)) {
                        outline.pop();
                    } else {
                        outline.push((end, y));
                    }
                    outline.push((right, y));
                }
                _ => {
                    if let Some(outline) = outlines.last_mut() {
                        outline.push((end, 0.0));
                    }
                    outlines.push(vec![(left, 0.0), (left, y), (right, y)]);
                }
            }
            end = right;
        }
        if let Some(outline) = outlines.last_mut() {
            outline.push((end, 0.0));
        }
        outlines
    }
}

fn same(a: f64, b: f64) -> bool {
    (a - b).abs() <= f64::EPSILON * a.abs().max(b.abs())
}

fn font(size: u32, scale: u32) -> TextStyle<'static> {
    ("sans-serif", size * scale).into_font().color(&TEXT)
}

/// `1 234 567`, `0.25`: as many digits as it takes.
fn number(value: f64) -> String {
    let text = format!("{value:.4}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    let (whole, fraction) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut grouped = String::new();
    for (index, digit) in whole.chars().enumerate() {
        let left = whole.len() - index;
        if index > 0 && left % 3 == 0 && whole.len() > 4 {
            grouped.push(' ');
        }
        grouped.push(digit);
    }
    grouped + fraction
}
