package main

import (
	"bytes"
	"fmt"
	"time"
)

// The look of all pictures: sizes in pixels, colours that survive a grey print.
const (
	width   = 720
	margin  = 66
	allowed = "#1a7f5a"
	denied  = "#c0392b"
	ink     = "#333333"
	pale    = "#dfe6e3"
)

// A canvas is an SVG that is being written.
type canvas struct{ bytes.Buffer }

func newCanvas(height int, title string) *canvas {
	c := &canvas{}
	fmt.Fprintf(c, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="system-ui,sans-serif" font-size="12" fill="%s">`+"\n", width, height, ink)
	fmt.Fprintf(c, "<title>%s</title>\n<rect width=\"%d\" height=\"%d\" fill=\"#ffffff\"/>\n", title, width, height)
	return c
}

func (c *canvas) done() []byte {
	c.WriteString("</svg>\n")
	return c.Bytes()
}

func (c *canvas) line(x1, y1, x2, y2 float64, colour string, thick float64) {
	fmt.Fprintf(c, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s" stroke-width="%.1f"/>`+"\n", x1, y1, x2, y2, colour, thick)
}

func (c *canvas) text(x, y float64, anchor, s string) {
	fmt.Fprintf(c, `<text x="%.1f" y="%.1f" text-anchor="%s">%s</text>`+"\n", x, y, anchor, s)
}

// drawScene draws the requests as marks, those that waited or stayed in flight
// with a tail, and under them how many units were left.
func drawScene(s scene, p play) []byte {
	const height, marks, top, bottom = 262, 84.0, 122.0, 222.0
	c := newCanvas(height, s.title)
	x := func(at time.Duration) float64 {
		return margin + float64(at)/float64(s.length)*(width-2*margin)
	}
	n := 0
	for _, a := range p.answers {
		if a.allowed {
			n++
		}
	}
	fmt.Fprintf(c, `<text x="%d" y="24" font-size="15" font-weight="600">%s</text>`+"\n", margin, s.title)
	c.text(margin, 42, "start", fmt.Sprintf("%s: %d of %d requests admitted", s.limit, n, len(p.answers)))
	for i, a := range p.answers {
		if !a.allowed {
			c.line(x(a.at), marks+3, x(a.at), marks+16, denied, 1.2)
			continue
		}
		y := marks - 3
		if a.to > a.at {
			y -= float64(i%6) * 4
			c.line(x(a.at), y, x(a.to), y, allowed, 1.2)
		}
		c.line(x(a.at), y, x(a.at), y-13, allowed, 1.6)
	}
	c.text(margin-6, marks-4, "end", "admitted")
	c.text(margin-6, marks+16, "end", "denied")
	y := func(left int64) float64 { return bottom - float64(left)/float64(max(1, p.quota))*(bottom-top) }
	fmt.Fprintf(c, `<path fill="%s" stroke="%s" d="M%.1f %.1f`, pale, allowed, x(0), bottom)
	for _, l := range p.left {
		fmt.Fprintf(c, "L%.1f %.1f", x(l.at), y(l.left))
	}
	fmt.Fprintf(c, `L%.1f %.1fZ"/>`+"\n", x(s.length), bottom)
	c.text(margin-6, top+5, "end", fmt.Sprint(p.quota, " left"))
	c.text(margin-6, bottom, "end", "0")
	for at := time.Duration(0); at <= s.length; at += s.tick {
		c.line(x(at), bottom, x(at), bottom+5, ink, 1)
		c.text(x(at), bottom+20, "middle", axisLabel(at, s.unit))
	}
	return c.done()
}

func axisLabel(at time.Duration, unit string) string {
	if unit == "h" {
		return fmt.Sprintf("%.0f h", at.Hours())
	}
	return fmt.Sprintf("%.0f s", at.Seconds())
}

// drawEdge draws the four algorithms one below the other: each admitted request a
// mark, the edge a line, the numbers at the side.
func drawEdge(edges []edge) []byte {
	const row, top = 46, 60
	height := top + row*len(edges) + 30
	c := newCanvas(height, "100 requests just before and 100 just after the edge of a window")
	x := func(at time.Duration) float64 {
		return 150 + float64(at+edgeSpread)/float64(2*edgeSpread)*(width-150-170)
	}
	fmt.Fprintf(c, `<text x="%d" y="24" font-size="15" font-weight="600">100/10s around the edge of a window</text>`+"\n", margin)
	c.text(margin, 42, "start", "100 requests in the last tenth of a second before it, 100 in the first after it; each mark is one admitted")
	for i, e := range edges {
		y := float64(top + row*i + 30)
		c.text(140, y, "end", e.algorithm.String())
		c.line(x(-edgeSpread), y+4, x(edgeSpread), y+4, pale, 1)
		for _, at := range e.admitted {
			c.line(x(at), y-14, x(at), y+3, allowed, 1.1)
		}
		c.text(width-160, y, "start", fmt.Sprintf("%d + %d = %d", e.before, e.after, e.before+e.after))
	}
	c.line(x(0), top+4, x(0), float64(height-26), denied, 1)
	c.text(x(0), float64(height-10), "middle", "edge")
	return c.done()
}
