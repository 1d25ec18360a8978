package accesslog

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
)

// Options change how Read works. Nil means the defaults.
type Options struct {
	// Stdin is read for the name "-". Nil makes that name an error.
	Stdin io.Reader
	// KeepUnreadable is how many unreadable lines of each file are kept with their number and
	// reason; all are counted. 0 means 10.
	KeepUnreadable int
	// Progress, if set, is called by Read's goroutine after about each MiB, and at the end.
	Progress func(Progress)
}

// Progress says how far Read has come.
type Progress struct {
	Read  int64 // bytes of the files as they are stored, compressed or not
	Total int64 // the size of all files; 0 if it is not known, as for a pipe
	Lines int   // lines seen
}

// A Log is what Read found. It is safe for concurrent use: nothing changes it.
type Log struct {
	Files []File // in the order of their names in the call of Read

	table  *table
	blocks [][]entry
	count  int
	order  []uint32 // entries by time; nil if they lie in that order
}

// A File is the account of one file.
type File struct {
	Name       string
	Lines      int
	Unreadable int       // how many of Lines are in no Record
	Kept       []BadLine // the first of them, at most Options.KeepUnreadable
}

// A BadLine is a line that Read could not understand.
type BadLine struct {
	Number int // from 1
	Err    error
}

// An entry is a Record with numbers of the table for strings.
type entry struct {
	time, bytes                                                  int64
	host, addr, user, method, path, query, proto, referer, agent uint32
	status                                                       uint16
}

const (
	blockLen = 1 << 14 // entries
	maxLine  = 1 << 20 // bytes, with the line break; longer lines are unreadable
)

// Read reads the named files one after the other, plain or compressed with gzip, whatever they are
// called; "-" is Options.Stdin. Unreadable lines are counted, never an error. The whole log is in
// memory afterwards, each string once.
//
// An error means that a file could not be read to its end, or that ctx is done.
func Read(ctx context.Context, names []string, opts *Options) (*Log, error) {
	if opts == nil {
		opts = &Options{}
	}
	r := &reader{
		stop: ctx.Err, opts: opts, total: totalSize(names), keep: cmp.Or(opts.KeepUnreadable, 10),
		log: &Log{table: newTable()}, sorted: true,
	}
	for _, name := range names {
		if err := r.file(name); err != nil {
			return nil, err
		}
	}
	r.report()
	if !r.sorted {
		r.log.sort()
	}
	r.log.table.numbers = nil // only reading needs it
	return r.log, nil
}

// Len returns the number of records.
func (l *Log) Len() int { return l.count }

// Lines returns the number of lines of all files.
func (l *Log) Lines() int {
	n := 0
	for _, f := range l.Files {
		n += f.Lines
	}
	return n
}

// Unreadable returns the number of unreadable lines of all files.
func (l *Log) Unreadable() int {
	n := 0
	for _, f := range l.Files {
		n += f.Unreadable
	}
	return n
}

// Records yields all records in the order of time. Records of equal time come in the order in
// which they were read. Equal strings share their memory.
func (l *Log) Records() iter.Seq[Record] {
	return func(yield func(Record) bool) {
		for i := range l.count {
			if l.order != nil {
				i = int(l.order[i])
			}
			if !yield(l.record(l.entry(i))) {
				return
			}
		}
	}
}

func (l *Log) entry(i int) *entry { return &l.blocks[i/blockLen][i%blockLen] }

func (l *Log) record(e *entry) Record {
	s := l.table.strings
	return Record{
		Time: e.time, Addr: s[e.addr], User: s[e.user], Host: s[e.host], Method: s[e.method],
		Path: s[e.path], Query: s[e.query], Proto: s[e.proto], Status: int(e.status), Bytes: e.bytes,
		Referer: s[e.referer], UserAgent: s[e.agent],
	}
}

func (l *Log) add(f *fields) {
	if l.count%blockLen == 0 {
		l.blocks = append(l.blocks, make([]entry, blockLen))
	}
	t := l.table
	*l.entry(l.count) = entry{
		time: f.time, bytes: f.bytes, status: f.status,
		host: t.number(f.host), addr: t.number(f.addr), user: t.number(f.user),
		method: t.number(f.method), path: t.number(f.path), query: t.number(f.query),
		proto: t.number(f.proto), referer: t.number(f.referer), agent: t.number(f.agent),
	}
	l.count++
}

// sort fills in order. The position breaks ties, which makes the order stable.
func (l *Log) sort() {
	type key struct {
		time int64
		at   uint32
	}
	keys := make([]key, l.count)
	for i := range keys {
		keys[i] = key{l.entry(i).time, uint32(i)}
	}
	slices.SortFunc(keys, func(a, b key) int {
		return cmp.Or(cmp.Compare(a.time, b.time), cmp.Compare(a.at, b.at))
	})
	l.order = make([]uint32, l.count)
	for i, k := range keys {
		l.order[i] = k.at
	}
}

// A reader is the state of one call of Read.
type reader struct {
	stop  func() error // the error of Read's context
	opts  *Options
	total int64
	keep  int

	log    *Log
	parser parser
	sorted bool  // the entries so far are in the order of time
	last   int64 // time of the last entry

	read, reported int64 // bytes
	lines          int
}

// A counter counts what src gives; it stands between a file and its decompression.
type counter struct {
	r   *reader
	src io.Reader
}

func (c counter) Read(b []byte) (int, error) {
	if err := c.r.stop(); err != nil {
		return 0, err
	}
	n, err := c.src.Read(b)
	c.r.read += int64(n)
	if c.r.read-c.r.reported >= 1<<20 {
		c.r.report()
	}
	return n, err
}

func (r *reader) report() {
	r.reported = r.read
	if r.opts.Progress != nil {
		r.opts.Progress(Progress{Read: r.read, Total: r.total, Lines: r.lines})
	}
}

// file reads one file or the standard input.
func (r *reader) file(name string) error {
	if name == "-" {
		if r.opts.Stdin == nil {
			return errors.New(`"-" is the standard input, and there is none`)
		}
		return r.stream(name, r.opts.Stdin)
	}
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	return r.stream(name, f)
}

// stream reads src to its end.
func (r *reader) stream(name string, src io.Reader) error {
	r.log.Files = append(r.log.Files, File{Name: name})
	file := &r.log.Files[len(r.log.Files)-1]
	if err := r.parseLines(file, counter{r, src}); err != nil {
		return fmt.Errorf("%s: after line %d: %w", name, file.Lines, err)
	}
	return nil
}

func (r *reader) parseLines(file *File, src io.Reader) error {
	in := bufio.NewReaderSize(src, maxLine)
	if magic, _ := in.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(in)
		if err != nil {
			return err
		}
		in = bufio.NewReaderSize(z, maxLine)
	}
	for {
		line, err := in.ReadSlice('\n')
		long := errors.Is(err, bufio.ErrBufferFull)
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = in.ReadSlice('\n')
		}
		end := errors.Is(err, io.EOF)
		if err != nil && !end {
			return err
		}
		if len(line) > 0 {
			r.line(file, line, long)
		}
		if end {
			return nil
		}
	}
}

// line makes an entry of a line, or a note that it is unreadable.
func (r *reader) line(file *File, line []byte, long bool) {
	file.Lines++
	r.lines++
	f, err := fields{}, errLong
	if !long {
		f, err = r.parser.parse(line)
	}
	if err != nil {
		file.Unreadable++
		if len(file.Kept) < r.keep {
			file.Kept = append(file.Kept, BadLine{file.Lines, err})
		}
		return
	}
	if r.log.count > 0 && f.time < r.last {
		r.sorted = false
	}
	r.last = f.time
	r.log.add(&f)
}

// totalSize returns the size of all files, or 0 if one is no regular file.
func totalSize(names []string) int64 {
	var total int64
	for _, name := range names {
		info, err := os.Stat(name)
		if err != nil || !info.Mode().IsRegular() {
			return 0
		}
		total += info.Size()
	}
	return total
}
