package controller

import (
	"reflect"
	"sync"
)

// Memory is what the lives of one controller leave to those after them in this
// process. It may serve nothing but haste or caution: a controller that starts
// in another process does without. The zero value is empty.
type Memory struct {
	mu    sync.Mutex
	parts map[reflect.Type]any
}

// Recall returns the part of memory that has type T, which construct makes when it
// is recalled for the first time. Lives that overlap share it. A nil memory keeps nothing.
func Recall[T any](m *Memory, construct func() T) T {
	if m == nil {
		return construct()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	kind := reflect.TypeFor[T]()
	if part, ok := m.parts[kind].(T); ok {
		return part
	}
	if m.parts == nil {
		m.parts = map[reflect.Type]any{}
	}
	part := construct()
	m.parts[kind] = part
	return part
}
