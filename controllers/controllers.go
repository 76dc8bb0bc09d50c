// Package controllers lists the controllers of this build.
package controllers

import (
	"github.com/wheelhouse-project/wheelhouse/controllers/bootstrapsigner"
	"github.com/wheelhouse-project/wheelhouse/controllers/clusterroleaggregation"
	"github.com/wheelhouse-project/wheelhouse/controllers/cronjob"
	"github.com/wheelhouse-project/wheelhouse/controllers/csrapproving"
	"github.com/wheelhouse-project/wheelhouse/controllers/csrcleaner"
	"github.com/wheelhouse-project/wheelhouse/controllers/csrsigning"
	"github.com/wheelhouse-project/wheelhouse/controllers/daemonset"
	"github.com/wheelhouse-project/wheelhouse/controllers/deployment"
	"github.com/wheelhouse-project/wheelhouse/controllers/endpoints"
	"github.com/wheelhouse-project/wheelhouse/controllers/endpointslice"
	"github.com/wheelhouse-project/wheelhouse/controllers/endpointslicemirroring"
	"github.com/wheelhouse-project/wheelhouse/controllers/garbagecollector"
	"github.com/wheelhouse-project/wheelhouse/controllers/job"
	"github.com/wheelhouse-project/wheelhouse/controllers/legacytokencleaner"
	"github.com/wheelhouse-project/wheelhouse/controllers/namespace"
	"github.com/wheelhouse-project/wheelhouse/controllers/podcertificatecleaner"
	"github.com/wheelhouse-project/wheelhouse/controllers/podgc"
	"github.com/wheelhouse-project/wheelhouse/controllers/replicaset"
	"github.com/wheelhouse-project/wheelhouse/controllers/replicationcontroller"
	"github.com/wheelhouse-project/wheelhouse/controllers/resourcequota"
	"github.com/wheelhouse-project/wheelhouse/controllers/rootca"
	"github.com/wheelhouse-project/wheelhouse/controllers/serviceaccount"
	"github.com/wheelhouse-project/wheelhouse/controllers/serviceaccounttoken"
	"github.com/wheelhouse-project/wheelhouse/controllers/servicecidr"
	"github.com/wheelhouse-project/wheelhouse/controllers/servingtrustbundle"
	"github.com/wheelhouse-project/wheelhouse/controllers/statefulset"
	"github.com/wheelhouse-project/wheelhouse/controllers/tokencleaner"
	"github.com/wheelhouse-project/wheelhouse/controllers/ttlafterfinished"
	"github.com/wheelhouse-project/wheelhouse/runtime/controller"
)

// All controllers of this build, by name.
func All() []controller.Descriptor {
	return []controller.Descriptor{
		bootstrapsigner.Descriptor(),
		csrapproving.Descriptor(),
		csrcleaner.Descriptor(),
		csrsigning.Descriptor(),
		clusterroleaggregation.Descriptor(),
		cronjob.Descriptor(),
		daemonset.Descriptor(),
		deployment.Descriptor(),
		endpoints.Descriptor(),
		endpointslice.Descriptor(),
		endpointslicemirroring.Descriptor(),
		garbagecollector.Descriptor(),
		job.Descriptor(),
		servingtrustbundle.Descriptor(),
		legacytokencleaner.Descriptor(),
		namespace.Descriptor(),
		podgc.Descriptor(),
		podcertificatecleaner.Descriptor(),
		replicaset.Descriptor(),
		replicationcontroller.Descriptor(),
		resourcequota.Descriptor(),
		rootca.Descriptor(),
		servicecidr.Descriptor(),
		serviceaccount.Descriptor(),
		serviceaccounttoken.Descriptor(),
		statefulset.Descriptor(),
		tokencleaner.Descriptor(),
		ttlafterfinished.Descriptor(),
	}
}
