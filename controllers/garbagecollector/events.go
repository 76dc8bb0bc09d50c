package garbagecollector

import corev1 "k8s.io/api/core/v1"

// recordInvalidNamespace tells that a reference leads to an owner in another namespace.
func (c *collector) recordInvalidNamespace(n *notice) {
	d := &n.dependent
	c.events.Eventf(&corev1.ObjectReference{
		APIVersion: d.apiVersion, Kind: d.kind, Namespace: d.namespace, Name: d.name, UID: d.uid,
	}, corev1.EventTypeWarning, "OwnerRefInvalidNamespace",
		"ownerRef [%s/%s, namespace: %s, name: %s, uid: %s] does not exist in namespace %q",
		n.ref.APIVersion, n.ref.Kind, d.namespace, n.ref.Name, n.ref.UID, d.namespace)
}
