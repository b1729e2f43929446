/** A picture that is moved and enlarged: by dragging, by the wheel, by two fingers, and by keys. */

const LEAST = 0.05;
const MOST = 3;

export class Viewport {
  private x = 0;
  private y = 0;
  private scale = 1;
  private readonly pointers = new Map<number, PointerEvent>();
  /** Whether the last press moved the picture, so that it chooses nothing. */
  moved = false;

  constructor(
    private readonly host: HTMLElement,
    private readonly picture: () => SVGGElement | null,
    private readonly size: () => { width: number; height: number },
  ) {
    host.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.zoom(Math.exp(-event.deltaY * (event.ctrlKey ? 0.01 : 0.0015)), event.clientX, event.clientY);
    });
    host.addEventListener("pointerdown", (event) => {
      this.pointers.set(event.pointerId, event);
      this.moved = false;
    });
    host.addEventListener("pointermove", (event) => this.drag(event));
    for (const name of ["pointerup", "pointercancel", "pointerleave"] as const)
      host.addEventListener(name, (event) => this.pointers.delete(event.pointerId));
    host.addEventListener("keydown", (event) => {
      const moves: Record<string, [number, number]> = {
        ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] };
      const by = moves[event.key];
      if (by) this.move(...by);
      else if (event.key === "+" || event.key === "=") this.zoom(1.25);
      else if (event.key === "-") this.zoom(0.8);
      else if (event.key === "0") this.fit();
      else return;
      event.preventDefault();
    });
    host.addEventListener("focusin", (event) => {
      if (event.target !== host && (event.target as Element).matches(":focus-visible")) this.reveal(event.target as Element);
    });
  }

  private drag(event: PointerEvent): void {
    const before = this.pointers.get(event.pointerId);
    if (!before) return;
    const other = [...this.pointers.values()].find((each) => each.pointerId !== event.pointerId);
    if (other) {
      const gap = (each: PointerEvent) => Math.hypot(each.clientX - other.clientX, each.clientY - other.clientY);
      this.zoom(gap(event) / (gap(before) || 1), other.clientX, other.clientY);
    } else {
      const [dx, dy] = [event.clientX - before.clientX, event.clientY - before.clientY];
      if (!this.moved && Math.hypot(dx, dy) < 4) return; // a click
      if (!this.moved) this.host.setPointerCapture(event.pointerId);
      this.move(dx, dy);
    }
    this.moved = true;
    this.pointers.set(event.pointerId, event);
  }

  private move(dx: number, dy: number): void {
    this.x += dx;
    this.y += dy;
    this.apply();
  }

  /** Enlarge around a point of the page; around the middle without one. */
  zoom(by: number, atX?: number, atY?: number): void {
    const box = this.host.getBoundingClientRect();
    const [x, y] = [(atX ?? box.left + box.width / 2) - box.left, (atY ?? box.top + box.height / 2) - box.top];
    const scale = Math.min(MOST, Math.max(LEAST, this.scale * by));
    this.x = x - ((x - this.x) * scale) / this.scale;
    this.y = y - ((y - this.y) * scale) / this.scale;
    this.scale = scale;
    this.apply();
  }

  /** Show the whole picture; of a tall one, its top at a size that can be read. */
  fit(): void {
    const { width, height } = this.size();
    const { clientWidth, clientHeight } = this.host;
    if (!clientWidth) return;
    const whole = Math.min(1.2, clientWidth / width, clientHeight / height);
    this.scale = Math.max(whole, Math.min(0.6, clientWidth / width));
    this.x = (clientWidth - width * this.scale) / 2;
    this.y = Math.max(0, (clientHeight - height * this.scale) / 2);
    this.apply();
  }

  /** Move the picture so that an element of it is in sight. */
  reveal(element: Element): void {
    const [box, at] = [this.host.getBoundingClientRect(), element.getBoundingClientRect()];
    const away = (low: number, high: number, from: number, to: number) =>
      low < from + 8 ? from + 24 - low : high > to - 8 ? to - 24 - high : 0;
    this.move(away(at.left, at.right, box.left, box.right), away(at.top, at.bottom, box.top, box.bottom));
  }

  apply(): void {
    this.picture()?.setAttribute("transform", `translate(${this.x.toFixed(1)},${this.y.toFixed(1)}) scale(${this.scale.toFixed(4)})`);
  }
}
