package cronjob

import (
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
)

// mostZones is more than there are; who names them in ever new ways must not
// fill the memory.
const mostZones = 1000

// zoneCache keeps the time zones that are in use: each is a file that is read and
// parsed, and is asked for several times by each reconcile.
type zoneCache struct {
	mu     sync.Mutex
	loaded map[string]*time.Location
}

// check returns why the time zone of a CronJob cannot be loaded.
func (z *zoneCache) check(cronJob *batchv1.CronJob) error {
	if cronJob.Spec.TimeZone == nil {
		return nil
	}
	_, err := z.load(*cronJob.Spec.TimeZone)
	return err
}

// load is time.LoadLocation.
func (z *zoneCache) load(name string) (*time.Location, error) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if zone, ok := z.loaded[name]; ok {
		return zone, nil
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil, err
	}
	if z.loaded == nil || len(z.loaded) >= mostZones {
		z.loaded = map[string]*time.Location{}
	}
	z.loaded[name] = zone
	return zone, nil
}
