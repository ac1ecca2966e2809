// A horizontal axis that zooms and moves, canvases that are drawn along it, and its overview.
class Axis {
  constructor(length, smallest) {
    [this.length, this.smallest, this.watching] = [length, Math.min(smallest, length), []];
    [this.start, this.stop] = [0, length];
  }

  get span() { return this.stop - this.start; }

  show(start, stop) {
    const span = Math.min(Math.max(stop - start, this.smallest), this.length);
    this.start = Math.min(Math.max(start, 0), this.length - span);
    this.stop = this.start + span;
    this.watching.forEach((each) => each());
  }

  zoom(factor, at = (this.start + this.stop) / 2) {
    const span = Math.min(Math.max(this.span * factor, this.smallest), this.length);
    const part = (at - this.start) / this.span;
    this.show(at - part * span, at + (1 - part) * span);
  }

  move(by) { this.show(this.start + by, this.stop + by); }

  fit() { this.show(0, this.length); }
}

const FONT = "12px system-ui, sans-serif";

// Draws once a frame at most, in the canvas's own pixels.
class Picture {
  constructor(canvas, height, draw) {
    [this.canvas, this.height, this.draw, this.asked] = [canvas, height, draw, false];
    new ResizeObserver(() => this.later()).observe(canvas);
  }

  later() {
    if (this.asked) return;
    this.asked = true;
    requestAnimationFrame(() => { this.asked = false; this.now(); });
  }

  now() {
    const width = this.canvas.clientWidth;
    const height = this.height(width);
    const scale = window.devicePixelRatio || 1;
    this.canvas.style.height = `${height}px`;
    this.canvas.width = Math.round(width * scale);
    this.canvas.height = Math.round(height * scale);
    const context = this.canvas.getContext("2d");
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.font = FONT;
    this.width = width;
    this.draw(context, width, height);
  }
}

// Wheel, drag and keys; `left` and `right` are what the canvas has beside the axis.
function steer(canvas, axis, { left, right }, place) {
  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    const part = (event.clientX - box.left - left) / Math.max(box.width - left - right, 1);
    return axis.start + Math.min(Math.max(part, 0), 1) * axis.span;
  };
  let held = null;
  canvas.addEventListener("wheel", (event) => {
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      axis.zoom(Math.exp(Math.min(Math.max(event.deltaY, -120), 120) / 240), at(event));
    } else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      event.preventDefault();
      axis.move((event.deltaX / canvas.clientWidth) * axis.span);
    }
  }, { passive: false });
  canvas.addEventListener("dblclick", (event) => axis.zoom(event.shiftKey ? 2 : 0.5, at(event)));
  canvas.addEventListener("pointerdown", (event) => {
    held = { x: event.clientX, start: axis.start, moved: false };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (held && Math.abs(event.clientX - held.x) > 3) held.moved = true;
    if (!held || !held.moved) { place.hover(event); return; }
    hideTip();
    const by = ((held.x - event.clientX) / Math.max(canvas.clientWidth - left - right, 1)) * axis.span;
    axis.show(held.start + by, held.start + by + axis.span);
  });
  canvas.addEventListener("pointerup", (event) => {
    if (held && !held.moved) place.press(event);
    held = null;
  });
  canvas.addEventListener("pointercancel", () => { held = null; });
  canvas.addEventListener("pointerleave", () => { hideTip(); place.leave(); });
  canvas.addEventListener("keydown", (event) => {
    const keys = {
      "+": () => axis.zoom(0.5, place.centre()), "=": () => axis.zoom(0.5, place.centre()),
      "-": () => axis.zoom(2, place.centre()), 0: () => axis.fit(),
      ArrowLeft: () => place.step(-1, 0), ArrowRight: () => place.step(1, 0),
      ArrowUp: () => place.step(0, -1), ArrowDown: () => place.step(0, 1),
      PageUp: () => axis.move(-axis.span / 2), PageDown: () => axis.move(axis.span / 2),
      Home: () => place.end(-1), End: () => place.end(1),
    };
    if (!(event.key in keys) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    keys[event.key]();
  });
}

// The whole axis in a narrow strip, with a frame around what is shown.
function overview(canvas, axis, { left, right }, draw) {
  const picture = new Picture(canvas, () => 34, (context, width, height) => {
    const long = width - left - right;
    draw(context, left, long, height);
    const [from, to] = [axis.start, axis.stop].map((each) =>
      left + (each / axis.length) * long);
    context.fillStyle = inks.page;
    context.globalAlpha = 0.65;
    context.fillRect(left, 0, from - left, height);
    context.fillRect(to, 0, left + long - to, height);
    context.globalAlpha = 1;
    context.strokeStyle = inks.accent;
    context.lineWidth = 2;
    context.strokeRect(from + 1, 1, Math.max(to - from - 2, 2), height - 2);
  });
  const go = (event) => {
    const box = canvas.getBoundingClientRect();
    const at = ((event.clientX - box.left - left) / (box.width - left - right)) * axis.length;
    axis.show(at - axis.span / 2, at + axis.span / 2);
  };
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    go(event);
  });
  canvas.addEventListener("pointermove", (event) => { if (event.buttons & 1) go(event); });
  axis.watching.push(() => picture.later());
  return picture;
}

function zoomButtons(axis, centre) {
  return make("span", { className: "zoom" },
    button("+", "Zoom in", () => axis.zoom(0.5, centre())), " ",
    button("−", "Zoom out", () => axis.zoom(2, centre())), " ",
    button("All", "Show everything", () => axis.fit()));
}
