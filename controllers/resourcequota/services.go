package resourcequota

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
)

var services = corev1.SchemeGroupVersion.WithResource("services")

func serviceEvaluator(list generic.ListFuncByNamespace) *evaluator {
	changed := onUpdate(func(before, after *corev1.Service) bool {
		return !quota.Equals(serviceUsage(before), serviceUsage(after))
	})
	return &evaluator{
		resource: services.GroupResource(),
		list:     list,
		matches: matching(func(name corev1.ResourceName) bool {
			switch name {
			case countServices, corev1.ResourceServices, corev1.ResourceServicesNodePorts, corev1.ResourceServicesLoadBalancers:
				return true
			}
			return false
		}),
		inScope: generic.MatchesNoScopeFunc,
		usage: func(object runtime.Object) (corev1.ResourceList, error) {
			service, err := as[*corev1.Service](object)
			if err != nil {
				return nil, err
			}
			return serviceUsage(service), nil
		},
		frees: changed,
		grows: changed,
	}
}

func serviceUsage(service *corev1.Service) corev1.ResourceList {
	var nodePorts, loadBalancers int64
	switch service.Spec.Type {
	case corev1.ServiceTypeNodePort:
		nodePorts = int64(len(service.Spec.Ports))
	case corev1.ServiceTypeLoadBalancer:
		loadBalancers = 1
		allocated := service.Spec.AllocateLoadBalancerNodePorts == nil || *service.Spec.AllocateLoadBalancerNodePorts
		for i := range service.Spec.Ports {
			if allocated || service.Spec.Ports[i].NodePort != 0 {
				nodePorts++
			}
		}
	}
	return corev1.ResourceList{
		countServices:                        one,
		corev1.ResourceServices:              one,
		corev1.ResourceServicesNodePorts:     *resource.NewQuantity(nodePorts, resource.DecimalSI),
		corev1.ResourceServicesLoadBalancers: *resource.NewQuantity(loadBalancers, resource.DecimalSI),
	}
}
