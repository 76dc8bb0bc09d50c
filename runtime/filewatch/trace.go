package filewatch

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// maxLinks is the kernel's limit of symbolic links in one path (path_resolution(7)).
const maxLinks = 40

// target is a directory or file whose events matter.
type target struct {
	// path has no symbolic links.
	path string
	info fs.FileInfo
	// names of the entries that matter; none when the target is the file.
	names map[string]bool
}

// trace finds everything that decides what path leads to: every directory
// along the way, of every symbolic link too, with the entry that is looked up
// in it, and the file itself, nil when the path leads nowhere.
func trace(path string) (targets []target, file fs.FileInfo) {
	rest := split(path)
	dir := string(filepath.Separator)
	links := 0
	for len(rest) > 0 {
		name := rest[0]
		rest = rest[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			dir = filepath.Dir(dir)
			continue
		}
		info, err := os.Lstat(dir)
		if err != nil {
			return targets, nil
		}
		targets = append(targets, target{path: dir, info: info, names: map[string]bool{name: true}})

		entry := filepath.Join(dir, name)
		info, err = os.Lstat(entry)
		if err != nil {
			return targets, nil
		}
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			links++
			to, err := os.Readlink(entry)
			if err != nil || links > maxLinks {
				return targets, nil
			}
			if filepath.IsAbs(to) {
				dir = string(filepath.Separator)
			}
			rest = append(split(to), rest...)
		case info.IsDir():
			dir = entry
		case len(rest) == 0:
			return append(targets, target{path: entry, info: info}), info
		default:
			return targets, nil // a file where a directory is needed
		}
	}
	return targets, nil // a directory in place of the file
}

func split(path string) []string { return strings.Split(path, string(filepath.Separator)) }

// traceAll joins the targets of all paths: one per inode, because the file
// system has one watch per inode, whatever the number of paths to it.
func traceAll(paths []string) (joined []target, files []fs.FileInfo) {
	for _, path := range paths {
		targets, file := trace(path)
		files = append(files, file)
		for _, t := range targets {
			joined = join(joined, t)
		}
	}
	return joined, files
}

func join(targets []target, t target) []target {
	for i, known := range targets {
		if os.SameFile(known.info, t.info) {
			for name := range t.names {
				targets[i].names[name] = true
			}
			return targets
		}
	}
	if t.names == nil {
		t.names = map[string]bool{}
	}
	return append(targets, t)
}
