//! Bar charts of the same kind, side by side, as SVG and as PNG.
//!
//! The text of a PNG is set in the font that is bundled, that of an SVG in the reader's own; so neither needs a font that
//! is installed here.

use std::error::Error;
use std::fs::{self, OpenOptions};
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

/// Makes sure that files can be written there, and the directories that they are in: before the work that fills them.
pub(crate) fn check_writable(files: &[&Path]) -> Result<(), String> {
    for file in files {
        let directory = file.parent().unwrap_or(Path::new("."));
        let opened = fs::create_dir_all(directory)
            .and_then(|()| OpenOptions::new().append(true).create(true).open(file));
        opened.map_err(|error| format!("can't write to {}: {error}", file.display()))?;
    }
    Ok(())
}

/// Draws the panels in a grid of two columns below a title, all with the same x range, as SVG at `svg` and as PNG at
/// `png`. Heights are measured by the highest bar of each panel, or by powers of ten that are the same for all panels: for
/// what differs so much that most of it would lie on the ground.
pub(crate) fn bars(
    svg: &Path,
    png: &Path,
    title: &str,
    x_label: &str,
    y_label: &str,
    is_logarithmic: bool,
    panels: &[Panel],
) -> Result<(), Box<dyn Error>> {
    register_font("sans-serif", FontStyle::Normal, FONT)
        .map_err(|_| "the bundled font can't be read")?;
    let figure = Figure {
        title,
        x_label,
        y_label,
        is_logarithmic,
        panels,
    };
    let rows = u32::try_from(panels.len().div_ceil(COLUMNS).max(1))?;
    let (width, height) = (WIDTH, TITLE_HEIGHT + rows * ROW_HEIGHT);

    let mut text = String::new();
    figure.draw(
        &SVGBackend::with_string(&mut text, (width, height)).into_drawing_area(),
        1,
    )?;
    fs::write(svg, text)?;
    // Two pixels to each point, for screens that have them.
    let size = (2 * width, 2 * height);
    figure.draw(&BitMapBackend::new(png, size).into_drawing_area(), 2)?;
    Ok(())
}

struct Figure<'a> {
    title: &'a str,
    x_label: &'a str,
    y_label: &'a str,
    is_logarithmic: bool,
    panels: &'a [Panel],
}

impl Figure<'_> {
    /// Draws everything `zoom` times as large.
    fn draw<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, Shift>,
        zoom: u32,
    ) -> Result<(), Box<dyn Error>>
    where
        B::ErrorType: 'static,
    {
        area.fill(&GROUND)?;
        let (top, below) = area.split_vertically(TITLE_HEIGHT * zoom);
        let middle = (
            i32::try_from(WIDTH * zoom / 2)?,
            i32::try_from(TITLE_HEIGHT * zoom / 2)?,
        );
        let centred = font(22, zoom).pos(Pos::new(HPos::Center, VPos::Center));
        top.draw_text(self.title, &centred, middle)?;
        let rows = self.panels.len().div_ceil(COLUMNS).max(1);
        let x = self.x_range();
        let highest = self.panels.iter().map(Panel::highest).fold(1.0, f64::max);
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
            let y = if self.is_logarithmic {
                // From where a bar of one can still be seen.
                -0.3..highest.log10() + 0.1
            } else if panel.highest() > 0.0 {
                0.0..panel.highest() * 1.05
            } else {
                0.0..1.0
            };
            let y_labels = if self.is_logarithmic {
                // One for each power of ten.
                format!("{highest:.0}").len() + 1
            } else {
                6
            };
            let bottom = y.start;
            let place = |value: f64| {
                if self.is_logarithmic {
                    value.log10()
                } else {
                    value
                }
            };
            let label = |place: &f64| {
                if !self.is_logarithmic {
                    number(*place)
                } else if same(*place, place.round()) {
                    number(10_f64.powf(*place))
                } else {
                    String::new()
                }
            };
            let mut chart = ChartBuilder::on(&cell)
                .margin(6 * zoom)
                .margin_right(22 * zoom)
                .caption(&panel.title, font(17, zoom))
                .x_label_area_size(42 * zoom)
                .y_label_area_size((38 + 8 * u32::try_from(label_width)?) * zoom)
                .build_cartesian_2d(x.clone(), y)?;
            chart
                .configure_mesh()
                .disable_x_mesh()
                .bold_line_style(LINE.stroke_width(zoom))
                .light_line_style(TRANSPARENT)
                .axis_style(TEXT.stroke_width(zoom))
                .x_labels(x_labels)
                .y_labels(y_labels)
                .x_label_formatter(&|x| number(*x))
                .y_label_formatter(&label)
                .label_style(font(15, zoom))
                .axis_desc_style(font(15, zoom))
                .x_desc(self.x_label)
                .y_desc(self.y_label)
                .draw()?;
            chart.draw_series(
                panel
                    .outlines(bottom, place)
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
    fn outlines(&self, bottom: f64, place: impl Fn(f64) -> f64) -> Vec<Vec<(f64, f64)>> {
        let mut outlines: Vec<Vec<(f64, f64)>> = Vec::new();
        let mut end = f64::NEG_INFINITY;
        for (&left, &y) in self.x.iter().zip(&self.y) {
            if y <= 0.0 {
                continue;
            }
            let y = place(y);
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
                        outline.push((end, bottom));
                    }
                    outlines.push(vec![(left, bottom), (left, y), (right, y)]);
                }
            }
            end = right;
        }
        if let Some(outline) = outlines.last_mut() {
            outline.push((end, bottom));
        }
        outlines
    }
}

fn same(a: f64, b: f64) -> bool {
    (a - b).abs() <= f64::EPSILON * a.abs().max(b.abs())
}

fn font(size: u32, zoom: u32) -> TextStyle<'static> {
    ("sans-serif", size * zoom).into_font().color(&TEXT)
}

/// `1 234 567`, `0.25`: as many digits as it takes.
pub(crate) fn number(value: f64) -> String {
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
