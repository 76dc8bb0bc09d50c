package resourcequota

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/wheelhouse-project/wheelhouse/runtime/work"
)

// books are the accounts of all quotas.
type books struct {
	clock clock.PassiveClock

	mu          sync.Mutex
	byNamespace map[string]map[string]*account
}

func newBooks(c clock.PassiveClock) *books {
	return &books{clock: c, byNamespace: map[string]map[string]*account{}}
}

// open an account for a quota that has come.
func (b *books) open(q *corev1.ResourceQuota) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.byNamespace[q.Namespace] == nil {
		b.byNamespace[q.Namespace] = map[string]*account{}
	}
	b.byNamespace[q.Namespace][q.Name] = newAccount(b.clock, q)
}

// update the account of a quota. It tells what account.update does.
func (b *books) update(q *corev1.ResourceQuota) (due, charged bool) {
	a := b.get(cache.MetaObjectToName(q))
	if a == nil {
		b.open(q)
		return false, false
	}
	return a.update(q)
}

// close the account of a quota that has gone.
func (b *books) close(key work.ObjectName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.byNamespace[key.Namespace], key.Name)
	if len(b.byNamespace[key.Namespace]) == 0 {
		delete(b.byNamespace, key.Namespace)
	}
}

// get the account of a quota; nil when there is none.
func (b *books) get(key work.ObjectName) *account {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.byNamespace[key.Namespace][key.Name]
}

// in returns the accounts of a namespace.
func (b *books) in(namespace string) []*account {
	b.mu.Lock()
	defer b.mu.Unlock()
	accounts := make([]*account, 0, len(b.byNamespace[namespace]))
	for _, a := range b.byNamespace[namespace] {
		accounts = append(accounts, a)
	}
	return accounts
}

// all accounts.
func (b *books) all() []*account {
	b.mu.Lock()
	defer b.mu.Unlock()
	var accounts []*account
	for _, named := range b.byNamespace {
		for _, a := range named {
			accounts = append(accounts, a)
		}
	}
	return accounts
}
