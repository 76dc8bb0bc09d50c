package cronjob

// Reasons of events on a CronJob.
const (
	successfulCreate = "SuccessfulCreate"
	failedCreate     = "FailedCreate"
	successfulDelete = "SuccessfulDelete"
	failedDelete     = "FailedDelete"
	sawCompletedJob  = "SawCompletedJob"
	unexpectedJob    = "UnexpectedJob"
	missingJob       = "MissingJob"
	jobAlreadyActive = "JobAlreadyActive"

	missSchedule        = "MissSchedule"
	tooManyMissedTimes  = "TooManyMissedTimes"
	invalidSchedule     = "InvalidSchedule"
	unparseableSchedule = "UnparseableSchedule"
	// unparseableChange is told when the schedule is changed, before the CronJob is looked at.
	unparseableChange   = "UnParseableCronJobSchedule"
	unknownTimeZone     = "UnknownTimeZone"
	unsupportedSchedule = "UnsupportedSchedule"
)
